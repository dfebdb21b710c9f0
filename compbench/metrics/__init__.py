"""How is a sample judged?"""
