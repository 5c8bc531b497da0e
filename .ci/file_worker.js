// Browsers start no worker from the file system.  There the search's script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.documentElement.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: resolve, onerror: reject });
          inside.document.head.append(script);
        });
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.#ready = load(new URL(url, document.baseURI).href);
    }

    postMessage(data) {
      const inside = this.#frame.contentWindow;
      this.#ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
