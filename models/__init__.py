"""Chat and retrieval models: the catalog with its prices, options of requests, and the engines behind them."""
