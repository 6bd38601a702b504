# glovebox run examples/hello.ps1 Ada
param([string]$Who = "world")
Write-Output "hello, $Who! I am in $(Get-Location)"
