package main

// Every plugin there is: a command that looks for devices should know all.
import (
	_ "github.com/go-fuel/fuel/plugins/cuda"
	_ "github.com/go-fuel/fuel/plugins/metal"
	_ "github.com/go-fuel/fuel/plugins/vulkan"
)
