// The page of a bisection needs no more than its theme.

openTheme();
document.documentElement.dataset.ready = "yes";
