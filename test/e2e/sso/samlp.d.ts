declare module 'samlp' {
  /** What a response is made of; the library has no types. */
  interface ResponseOptions {
    readonly [name: string]: unknown;
  }
  const samlp: {
    getSamlResponse(
      options: ResponseOptions,
      user: unknown,
      done: (error: Error | null, response: string) => void,
    ): void;
    parseRequest(
      request: { readonly query: Record<string, string> },
      done: (error: Error | null, data?: Record<string, string>) => void,
    ): void;
  };
  export default samlp;
}
