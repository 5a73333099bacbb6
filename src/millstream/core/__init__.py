"""What every room needs: errors, names, families chosen by name, the operator graph, the codec."""
