"""RASD: a draft model's tree fused with a retrieved one."""
