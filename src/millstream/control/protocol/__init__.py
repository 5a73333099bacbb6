"""What processors, managers, partners and coordinators say to each other."""
