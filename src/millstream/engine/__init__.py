"""What a processor does next, through two ports; how rows are computed is behind them."""
