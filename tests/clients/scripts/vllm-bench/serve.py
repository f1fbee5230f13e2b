"""`vllm bench serve`, through its module: the `vllm` command refuses to start where only the CPU build is installed."""

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
