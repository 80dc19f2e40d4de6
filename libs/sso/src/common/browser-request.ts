import type { InboundRequest } from '@rookery/http';

/** What signing on needs of a browser's request: whence it came, its address, cookies and form. */
export type BrowserRequest = Pick<
  InboundRequest,
  'requestId' | 'method' | 'url' | 'ip' | 'userAgent' | 'headers' | 'query' | 'rawBody'
>;
