/** What a Rookery module may implement and call. */
export {};
