"""What is kept?  Records, and the code that reads, checks, submits and exports them."""
