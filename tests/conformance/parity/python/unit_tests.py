import unittest
class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(1 + 1, 2)
result = unittest.TextTestRunner(stream=open('/dev/null', 'w')).run(unittest.defaultTestLoader.loadTestsFromTestCase(T))
print(result.wasSuccessful(), result.testsRun)
