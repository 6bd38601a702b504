def main():
    try:
        raise SystemExit(3)
    finally:
        print('cleaned')
main()
