package cpu

import "golang.org/x/sys/windows"

// Wine says what it is by one function more.
var wine = windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
