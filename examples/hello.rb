# glovebox run examples/hello.rb Ada
puts "hello, #{ARGV[0] || "world"}! I am uid #{Process.uid} in #{Dir.pwd}"
