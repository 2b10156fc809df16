"""The four tests of Wiegreffe & Pinter (2019), one file each, read from the tables of a study's runs."""
