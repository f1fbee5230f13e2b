"""An MCP server over standard input and output: its tools ask a running pith over HTTP."""
