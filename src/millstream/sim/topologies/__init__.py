"""Networks: from files, generated, and arranged into problems."""
