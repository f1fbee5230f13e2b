"""Files that projects upload, and batches of requests over them: what each line became, written with its settlement."""
