"""The playground: a page at `/` on which a person tries compression and chat, and reads the catalog and the own usage.

It asks the public routes alone, and its files are this server's.
"""
