"""Files that may be damaged, as the check reads them."""
