"""Files and batches: uploads streamed to disk; lines that run beside interactive requests, each as one of its own."""
