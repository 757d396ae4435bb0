// Before anything is drawn: the theme that was chosen here before.
{
  const theme = localStorage.getItem("gamecast-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
