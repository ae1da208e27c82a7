// The only behavior of a page without a browser of traces is its theme.

openTheme();
document.documentElement.dataset.ready = "yes";
