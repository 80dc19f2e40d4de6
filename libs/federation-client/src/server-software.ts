/** What this program calls itself towards other servers. */
export class ServerSoftware {
  constructor(
    readonly name: string,
    readonly version: string,
    /** Value of the `User-Agent` header. */
    readonly userAgent: string,
  ) {}
}
