"""Writes deploy/kuberay/pith.yaml anew from the chart: `python -m tests.deploy.make_manifest`."""

import yaml

from tests.deploy.chart import ROOT, rendered

KUBERAY = ROOT / "deploy/kuberay"


def main() -> None:
    values = yaml.safe_load((KUBERAY / "values.yaml").read_text())
    (KUBERAY / "pith.yaml").write_text(rendered(values))


if __name__ == "__main__":
    main()
