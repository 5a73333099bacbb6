"""From text to plan, and what plans have in common. Knows no processor, file or Spark session."""
