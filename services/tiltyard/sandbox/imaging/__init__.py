"""Building images: from Debian packages, from an OCI image, and what makes either fit for a sandbox."""
