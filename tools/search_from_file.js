// Browsers refuse workers to a page that was opened as a file. There a hidden frame runs the script of the search instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }))
        .then(() => this.run(String(url)));
      this.ready.catch((error) => this.onerror?.(error));
      document.body.append(this.frame);
    }

    run(url) {
      const inside = this.frame.contentWindow, script = inside.document.createElement("script");
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      return new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
        script.src = url;
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.onmessage({ data })).catch(() => {});
    }

    terminate() {
      this.frame.remove();
    }
  };
}
