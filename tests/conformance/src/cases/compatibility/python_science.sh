# numpy, pandas and a pool of threads.
cat > main.py <<'END'
import concurrent.futures
import io
import numpy as np
import pandas as pd

grid = np.arange(1_000_000, dtype=np.float64).reshape(1000, 1000)
print(grid.shape, grid.sum(), np.linalg.norm(grid @ grid.T))
print(np.fft.fft(np.sin(np.linspace(0, 1, 16))).round(6).tolist()[:3])
table = pd.read_csv(io.StringIO("name,size\na,1\nb,2\na,3\n"))
print(table.groupby("name")["size"].agg(["sum", "mean"]).to_string())
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda n: int(np.sqrt(n) * 10), range(1000))))
with concurrent.futures.ProcessPoolExecutor(3) as pool:
    print(list(pool.map(abs, [-1, -2, -3])))
END
python3 main.py
