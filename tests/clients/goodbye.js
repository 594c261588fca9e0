'use strict';

// How a consumer of ali-ons leaves. It tells each broker of its last route, one after the other, and gives
// up at the first that it cannot reach: after a leader was killed that may be the dead one. Such a broker
// needs no goodbye, and the others are told all the same. Whatever else goes wrong is an error as ever.

const gone = err => [ 'ECONNREFUSED', 'ECONNRESET' ].includes(err.code) || err.name === 'SocketCloseError';

module.exports = async consumer => {
  const client = consumer._mqClient;
  const goodbye = client.unregisterClient.bind(client);
  client.unregisterClient = async (...args) => {
    try {
      await goodbye(...args);
    } catch (err) {
      if (!gone(err)) throw err;
    }
  };
  await consumer.close();
};
