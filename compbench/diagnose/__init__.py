"""What happens inside a model?"""
