// glovebox run examples/hello.java Ada
public class hello {
    public static void main(String[] args) {
        String who = args.length > 0 ? args[0] : "world";
        System.out.println("hello, " + who + "! I am in " + System.getProperty("user.dir"));
    }
}
