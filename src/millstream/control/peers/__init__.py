"""A cluster without a manager: who is a member, and what everybody remembers of its queries."""
