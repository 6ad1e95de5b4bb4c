"""The trainer: closed groups in, new policy versions out."""
