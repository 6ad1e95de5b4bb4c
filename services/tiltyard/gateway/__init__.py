"""The gateway: samples turns from engines that speak SGLang's native HTTP API, and moves them to new weights."""
