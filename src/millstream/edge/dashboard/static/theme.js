// Before anything is drawn: the theme that was chosen here last, else the system's.
document.documentElement.dataset.theme =
  localStorage.getItem("millstream-theme") ||
  (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
