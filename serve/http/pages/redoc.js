Redoc.init("openapi.json", {}, document.getElementById("viewer"));
