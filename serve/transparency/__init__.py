"""The transparency log as anybody may read it: its checkpoint and its tiles, as C2SP's tlog-tiles has them."""
