"""`trainer-kai run`: run one of our processes, or all of them in one."""
