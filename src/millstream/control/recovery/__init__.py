"""What is left when a manager's memory or a processor is gone, and how work goes on."""
