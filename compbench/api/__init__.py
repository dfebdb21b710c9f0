"""What is a method, a task, a metric?  The types and hooks that a plugin's author reads."""
