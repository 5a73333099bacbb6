"""Tables that change, in FROM and WHERE: as tables beside each other, or as of a row's instant."""
