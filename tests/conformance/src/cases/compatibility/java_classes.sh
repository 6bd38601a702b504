# javac, java, a jar, and threads of both.
mkdir -p src/app out
cat > src/app/Main.java <<'END'
package app;

import java.util.concurrent.*;
import java.util.stream.*;

public class Main {
    record Part(String name, int size) {}

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        Future<Integer> sum = pool.submit(() -> IntStream.rangeClosed(1, 1000).parallel().sum());
        System.out.println(new Part("sum", sum.get()));
        pool.shutdown();
        Process child = new ProcessBuilder("echo", "from a child").inheritIO().start();
        System.out.println(child.waitFor());
    }
}
END
javac -d out src/app/Main.java
jar cfe app.jar app.Main -C out .
java -jar app.jar
