// glovebox run examples/hello.cs Ada
using System;

class Hello
{
    static void Main(string[] args)
    {
        string who = args.Length > 0 ? args[0] : "world";
        Console.WriteLine($"hello, {who}! I am in {Environment.CurrentDirectory}");
    }
}
