"""Metrics of the service, and the port that shows them. Each HTTP process counts in files of its own, which the
process that started the server adds up, so that one scrape shows the service whatever the number of its processes.
"""
