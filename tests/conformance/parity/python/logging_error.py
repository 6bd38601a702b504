import logging
logging.basicConfig(format='%(levelname)s %(message)s')
try:
    int('x')
except ValueError:
    logging.exception('it failed')
logging.warning('warned')
