from sluggish.cli import main

main()
