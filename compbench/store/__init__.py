"""What is kept?  Records, how they are read, checked, handed in and exported."""
