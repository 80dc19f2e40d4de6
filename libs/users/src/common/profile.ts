/** A user's profile: `displayname`, `avatar_url` and further fields (MSC4133), as on the wire. */
export type Profile = Readonly<Record<string, unknown>> & {
  readonly displayname?: string;
  readonly avatar_url?: string;
};
